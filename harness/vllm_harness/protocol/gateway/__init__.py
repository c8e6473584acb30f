"""What a gateway does to the answers of the server behind it: one request both ways, and the differences."""
