"""Reading rows and columns of CSV, TSV and JSON Lines files."""
