"""A project to start from. ``template/`` is one that builds: owner/my-kernel, under Apache-2.0."""
