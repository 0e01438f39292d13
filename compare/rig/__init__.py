"""What every side-by-side measurement in compare/ needs: packages, processes, servers, load, and the words for the result."""
