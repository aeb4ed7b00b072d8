// tandem-tiny-model DIR: writes the tiny model of tests/support/tiny_model.h, so that scripts need
// no download.
#include <cstdio>

#include "tests/support/tiny_model.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: tandem-tiny-model DIR\n", stderr);
    return 64;
  }
  const absl::Status written = tandem::testing::WriteTinyModel(argv[1]);
  if (written.ok()) return 0;
  std::fprintf(stderr, "%s\n", written.ToString().c_str());
  return 74;
}
