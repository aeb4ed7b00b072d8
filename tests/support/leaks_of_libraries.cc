// Leaks of libraries that AddressSanitizer's leak checker is to pass over, in its own format: a
// line matches any frame of the allocation's stack.

extern "C" const char* __lsan_default_suppressions();

extern "C" const char* __lsan_default_suppressions() {
  // c-ares 1.18 forgets a copied host name where several lines of /etc/hosts give one address, as
  // for "localhost" with other names of 127.0.0.1. Stacks end at its frames: it has no frame
  // pointers.
  return "leak:ares_strdup\n";
}
