"""The pages, and the programs that write their generated parts."""
