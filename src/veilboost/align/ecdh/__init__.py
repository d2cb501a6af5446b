"""`ecdh`: ids become points that every party blinds once; no third party, no common key."""
