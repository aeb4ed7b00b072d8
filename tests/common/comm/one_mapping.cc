// Linked into comm_test under ThreadSanitizer only, in front of mmap and munmap. Every rank maps
// the group's segment for itself, so ranks that are threads write to one page at several addresses,
// and ThreadSanitizer, which goes by address, neither sees a race there nor what orders it. With
// one mapping per segment it sees both.
#include <map>
#include <mutex>

#include <sys/mman.h>
#include <sys/stat.h>

extern "C" {
void* __real_mmap(void* address, size_t bytes, int access, int flags, int fd, off_t offset);
int __real_munmap(void* address, size_t bytes);
void* __wrap_mmap(void* address, size_t bytes, int access, int flags, int fd, off_t offset);
int __wrap_munmap(void* address, size_t bytes);
}

namespace {

struct Mapping {
  void* address = nullptr;
  int users = 0;
};

std::mutex mutex;

// Never destroyed: other static objects may map and unmap after it would be.
std::map<ino_t, Mapping>& Mappings() {
  static auto* const mappings = new std::map<ino_t, Mapping>;
  return *mappings;
}

}  // namespace

void* __wrap_mmap(void* address, size_t bytes, int access, int flags, int fd, off_t offset) {
  struct stat file {};
  if ((flags & MAP_SHARED) == 0 || fd < 0 || fstat(fd, &file) != 0) {
    return __real_mmap(address, bytes, access, flags, fd, offset);
  }
  const std::lock_guard lock(mutex);
  Mapping& mapping = Mappings()[file.st_ino];
  if (mapping.users == 0) {
    mapping.address = __real_mmap(address, bytes, access, flags, fd, offset);
    if (mapping.address == MAP_FAILED) return MAP_FAILED;
  }
  ++mapping.users;
  return mapping.address;
}

int __wrap_munmap(void* address, size_t bytes) {
  const std::lock_guard lock(mutex);
  for (auto& [inode, mapping] : Mappings()) {
    if (mapping.users > 0 && mapping.address == address && --mapping.users > 0) return 0;
  }
  return __real_munmap(address, bytes);
}
