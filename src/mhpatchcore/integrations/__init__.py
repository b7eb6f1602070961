"""Doors to other libraries, one module each; nothing else imports them."""
