"""`hmac_csp`: ids hashed under a common key, intersected by a computing service that lacks the key."""
