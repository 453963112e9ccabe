"""The straight line of a build: select -> scan -> plan -> run -> bundle."""
