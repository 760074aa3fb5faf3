"""Reports: tables with titles and notes, as text, JSON and CSV."""
