"""SDKs made of wheels: asked for through pip, read by ranges, checked against their own lists, kept in one store."""
