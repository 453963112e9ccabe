"""Packages in other forms: an upstream project, a pip wheel, a CMake tree."""
