// A plug-in that needs a library which is not found where it is opened, and that library.
int tutti_lacking() { return 0; }
