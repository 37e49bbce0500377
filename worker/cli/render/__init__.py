"""Makes things readable on a terminal; decides nothing and fetches nothing."""
