"""Documents that people write: YAML with bounds, checked against a schema."""
