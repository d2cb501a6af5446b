"""How messages travel: what they are, how they become bytes, who carries them, and the record of all that left."""
