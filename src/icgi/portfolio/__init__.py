"""The only place where engines are combined."""
