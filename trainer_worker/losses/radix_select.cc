#include "trainer_worker/losses/radix_select.h"

#include <numeric>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

constexpr int kBytes = sizeof(SelectionKey);

size_t Byte(const SelectionKey& key, int index) {
  const uint64_t word = key[static_cast<size_t>(index / 8)];
  return static_cast<size_t>((word >> (8 * (7 - index % 8))) & 0xff);
}

}  // namespace

absl::StatusOr<std::vector<uint8_t>> SelectLargest(const std::vector<SelectionKey>& keys,
                                                   int64_t count,
                                                   Communicator& communicator) {
  std::vector<uint8_t> selected(keys.size(), 0);
  std::vector<size_t> open(keys.size());  // keys that agree in the bytes seen, still undecided
  std::iota(open.begin(), open.end(), size_t{0});
  auto missing = static_cast<double>(count);
  for (int byte = 0; byte < kBytes && missing > 0; ++byte) {
    std::array<double, 256> sizes{};
    for (const size_t i : open) ++sizes[Byte(keys[i], byte)];
    TANDEM_RETURN_IF_ERROR(communicator.AllReduceSum(sizes.data(), std::ssize(sizes)));
    int border = 255;  // buckets above it belong to the largest
    for (; border >= 0 && sizes[static_cast<size_t>(border)] <= missing; --border) {
      missing -= sizes[static_cast<size_t>(border)];
    }
    std::vector<size_t> rest;
    for (const size_t i : open) {
      const auto bucket = static_cast<int>(Byte(keys[i], byte));
      if (bucket > border) selected[i] = 1;
      if (bucket == border) rest.push_back(i);
    }
    if (border < 0) break;  // all of them
    open = std::move(rest);
  }
  return selected;
}

}  // namespace tandem
