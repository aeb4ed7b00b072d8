#include <cstring>
#include <vector>

#include <catch2/catch.hpp>

#include "common/weights/cpu_storage_ops.h"
#include "tests/common/weights/layout_zoo.h"
#include "tests/fakes/memory_weights.h"

namespace tandem {
namespace {

using testing::MemoryWeights;

// Rows of every tensor in pieces of `step`, in reverse, so that panels come by parts.
std::vector<DenseRows> Pieces(const WeightLayout& layout, MemoryWeights& weights, int64_t step) {
  std::vector<DenseRows> pieces;
  for (const TensorPlace& place : layout.places()) {
    const int64_t rows = place.rows();
    if (rows == 0) continue;
    const int64_t row_bytes = MemoryWeights::Bytes(layout, place) / rows;
    for (int64_t row = (rows - 1) / step * step; row >= 0; row -= step) {
      pieces.push_back(
          {&place, row, std::min(step, rows - row), weights.tensor(place.name) + row * row_bytes});
    }
  }
  return pieces;
}

}  // namespace

TEST_CASE("rows stored by any number of threads, whole or by parts, are those of one by one") {
  for (const testing::ZooModel& model : testing::LayoutZoo()) {
    const WeightLayout layout = WeightLayout::Build(model.spec, model.dtype);
    MemoryWeights weights(layout, 5);
    std::vector<std::byte> serial(static_cast<size_t>(layout.total_bytes()));
    std::vector<const TensorPlace*> places;
    std::vector<Digest> digests;
    for (const TensorPlace& place : layout.places()) {
      layout.WriteRows(serial.data() + layout.group_offset(place.layer), place, 0, place.rows(),
                       weights.tensor(place.name));
      places.push_back(&place);
      digests.push_back(DigestOf(weights.tensor(place.name), MemoryWeights::Bytes(layout, place)));
    }
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      for (const int64_t step : {7, 16, 1 << 20}) {
        INFO(model.name << ", " << threads << " threads, pieces of " << step << " rows");
        std::vector<std::byte> storage(serial.size());
        StoreRows(pool, layout, storage.data(), Pieces(layout, weights, step));
        REQUIRE(storage == serial);
        REQUIRE(DigestStored(pool, layout, storage.data(), places) == digests);
      }
    }
  }
}

}  // namespace tandem
