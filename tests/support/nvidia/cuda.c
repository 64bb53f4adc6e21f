/* libcuda.so.1 as far as it is asked here: until cuInit has run it answers nothing else. */
static int initialised;

int cuInit(unsigned flags) { (void)flags; initialised = 1; return 0; }
int cuDeviceGetCount(int *count) { if (!initialised) return 3; *count = 1; return 0; }
