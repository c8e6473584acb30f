"""What every API shares."""
