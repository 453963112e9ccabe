"""What a compiled library may need of the systems that it will meet: the tables, reading and writing ELF, the rules."""
