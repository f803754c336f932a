"""The pure core of bacepipe: values in, values out. It knows no clock, no database and no network."""
