"""Data sets from the web or from archives got by hand: downloaded, checked, unpacked."""
