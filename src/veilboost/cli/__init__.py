"""The command line: one file per command. Heavy libraries load inside commands, so that help is quick."""
