// Linked into comm_test under ThreadSanitizer only, in front of mmap and munmap. Every rank maps
// the group's segment for itself, so ranks that are threads write to one page at several addresses,
// and ThreadSanitizer, which goes by address, neither sees a race there nor what orders it. With
// one mapping per segment it sees both. Other parts of a file have mappings of their own: the
// emulated GPU maps the header of its memory apart from the memory.
#include <map>
#include <tuple>

#include <catch2/catch.hpp>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/base/mutex.h"
#include "common/device/shared_region.h"

extern "C" {
void* __real_mmap(void* address, size_t bytes, int access, int flags, int fd, off_t offset);
int __real_munmap(void* address, size_t bytes);
void* __wrap_mmap(void* address, size_t bytes, int access, int flags, int fd, off_t offset);
int __wrap_munmap(void* address, size_t bytes);
}

namespace {

// Which part of which file: device, inode, offset, bytes.
using Part = std::tuple<dev_t, ino_t, off_t, size_t>;
struct Mapping {
  void* address = nullptr;
  int users = 0;
};

tandem::Mutex mappings_mutex;

// Never destroyed: other static objects may map and unmap after it would be.
std::map<Part, Mapping>& Mappings() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mappings_mutex) {
  static auto* const mappings = new std::map<Part, Mapping>;
  return *mappings;
}

}  // namespace

void* __wrap_mmap(void* address, size_t bytes, int access, int flags, int fd, off_t offset) {
  struct stat file {};
  if ((flags & MAP_SHARED) == 0 || fd < 0 || fstat(fd, &file) != 0) {
    return __real_mmap(address, bytes, access, flags, fd, offset);
  }
  const tandem::MutexLock lock(mappings_mutex);
  Mapping& mapping = Mappings()[{file.st_dev, file.st_ino, offset, bytes}];
  if (mapping.users == 0) {
    mapping.address = __real_mmap(address, bytes, access, flags, fd, offset);
    if (mapping.address == MAP_FAILED) return MAP_FAILED;
  }
  ++mapping.users;
  return mapping.address;
}

int __wrap_munmap(void* address, size_t bytes) {
  const tandem::MutexLock lock(mappings_mutex);
  for (auto& [part, mapping] : Mappings()) {
    if (mapping.users > 0 && mapping.address == address && --mapping.users > 0) return 0;
  }
  return __real_munmap(address, bytes);
}

namespace tandem {

TEST_CASE("parts of a file are mapped apart, and the same part once") {
  constexpr size_t kPage = 4096;
  const auto file = CreateSharedMemory("one-mapping-test", 3 * kPage);
  REQUIRE(file.ok());
  const auto map = [&](size_t bytes, off_t offset) {
    void* const address =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), offset);
    REQUIRE(address != MAP_FAILED);
    return static_cast<char*>(address);
  };
  char* const header = map(kPage, 0);
  char* const memory = map(2 * kPage, kPage);
  REQUIRE((memory + 2 * kPage <= header || header + kPage <= memory));
  REQUIRE(map(2 * kPage, kPage) == memory);
  REQUIRE(munmap(memory, 2 * kPage) == 0);
  memory[2 * kPage - 1] = 'm';  // the other user's, still mapped
  REQUIRE(munmap(memory, 2 * kPage) == 0);
  REQUIRE(munmap(header, kPage) == 0);
}

}  // namespace tandem
