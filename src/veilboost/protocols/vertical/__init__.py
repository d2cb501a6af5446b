"""Code that vertical protocols share."""
