"""The pages of the viewer in a headless browser: accessible, quiet, without outside requests, and used for a reviewer's hour."""
