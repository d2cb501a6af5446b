"""Messages, their encoding, the channels that carry them, and the transcript of every message sent and received."""
