"""The command line: a file for commands of one kind. Heavy libraries load inside commands, so that help is quick."""
