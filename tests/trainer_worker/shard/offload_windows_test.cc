#include "trainer_worker/shard/offload_windows.h"

#include <catch2/catch.hpp>

#include "tests/support/bytes_in.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

std::unique_ptr<FileRegion> Numbers(const testing::TempDir& dir, int64_t count, float first) {
  auto region = FileRegion::Create("master", dir.path().string(), count * 4, nullptr);
  REQUIRE(region.ok());
  auto* values = reinterpret_cast<float*>((*region)->data());
  for (int64_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i);
  (*region)->Evict(0, count * 4);
  return *std::move(region);
}

}  // namespace

TEST_CASE("windows cover all elements once, in order", "[offload]") {
  REQUIRE(CutWindows(0, 4).empty());
  const auto windows = CutWindows(10, 4);
  REQUIRE(windows.size() == 3);
  REQUIRE(windows[0].first == 0);
  REQUIRE(windows[1].first == 4);
  REQUIRE(windows[2].first == 8);
  REQUIRE(windows[2].count == 2);
  REQUIRE(CutWindows(8, 4).size() == 2);
}

TEST_CASE("every window of every array passes once, and what it becomes stays in the file",
          "[offload]") {
  const testing::TempDir dir;
  for (const int64_t elements : {1, 4096, 4097, 50000}) {
    const auto a = Numbers(dir, elements, 0), b = Numbers(dir, elements, 0.5);
    Ledger ledger;
    {
      const auto windows = CutWindows(elements, 4096);
      auto stream =
          OffloadWindows::Create({{"master", a.get()}, {"optimizer", b.get()}}, windows, &ledger);
      REQUIRE(stream.ok());
      // Two buffers for each array, of one huge page here.
      REQUIRE(BytesOf(ledger.Snapshot(), "master") == 2 << 21);
      REQUIRE(BytesOf(ledger.Snapshot(), "optimizer") == 2 << 21);
      for (size_t w = 0; w < windows.size(); ++w) {
        const std::vector<std::byte*> places = (*stream)->Open(w).value();
        REQUIRE(places.size() == 2);
        float* const arrays[] = {reinterpret_cast<float*>(places[0]),
                                 reinterpret_cast<float*>(places[1])};
        for (int64_t i = 0; i < windows[w].count; ++i) {
          const auto index = static_cast<float>(windows[w].first + i);
          if (arrays[0][i] != index || arrays[1][i] != index + 0.5f) FAIL("element " << index);
          arrays[0][i] = 2 * index;
          arrays[1][i] = -index;
        }
        REQUIRE((*stream)->Close(w).ok());
      }
      REQUIRE((*stream)->Finish().ok());
    }
    REQUIRE(testing::BytesIn(ledger.Snapshot(), Location::kDevice) == 0);
    REQUIRE(a->BytesInUse() == 0);
    const auto* doubled = reinterpret_cast<const float*>(a->data());
    const auto* negated = reinterpret_cast<const float*>(b->data());
    for (int64_t i = 0; i < elements; ++i) {
      if (doubled[i] != 2 * static_cast<float>(i) || negated[i] != -static_cast<float>(i)) {
        FAIL("element " << i);
      }
    }
  }
}

TEST_CASE("a stream of no arrays has no buffers", "[offload]") {
  Ledger ledger;
  const auto stream = OffloadWindows::Create({}, CutWindows(100, 10), &ledger);
  REQUIRE(stream.ok());
  REQUIRE((*stream)->Open(0)->empty());
  REQUIRE((*stream)->Close(0).ok());
  REQUIRE((*stream)->Finish().ok());
  REQUIRE(ledger.Snapshot().entries.empty());
}

}  // namespace tandem
