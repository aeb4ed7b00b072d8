#include <algorithm>
#include <cstring>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "common/weights/layout.h"
#include "tests/common/weights/layout_zoo.h"

namespace tandem {
namespace {

// A storage whose tensors are all ones and whose padding is zero: what is zero is padding.
std::vector<std::byte> Filled(const WeightLayout& layout) {
  std::vector<std::byte> storage(layout.total_bytes());
  for (const TensorPlace& place : layout.places()) {
    const std::vector<std::byte> rows(
        place.rows() * place.cols() * static_cast<int64_t>(DTypeBytes(layout.dtype())),
        std::byte{0xff});
    layout.WriteRows(storage.data() + layout.group_offset(place.layer), place, 0, place.rows(),
                     rows.data());
  }
  return storage;
}

}  // namespace

TEST_CASE(
    "P7: every byte that is not a tensor's is padding, and any of them that changes is found") {
  for (const testing::ZooModel& model : testing::LayoutZoo()) {
    INFO(model.name);
    const WeightLayout layout = WeightLayout::Build(model.spec, model.dtype);
    std::vector<std::byte> storage = Filled(layout);
    REQUIRE(CheckPadding(layout, storage.data()).ok());
    std::vector<size_t> padding;
    for (size_t i = 0; i < storage.size(); ++i) {
      if (storage[i] == std::byte{0}) padding.push_back(i);
    }
    // Some hundred of them, of all kinds: neighbours in a lane, lanes, panels, gaps.
    const size_t step = std::max<size_t>(1, padding.size() / 300);
    for (size_t i = 0; i < padding.size(); i += step) {
      std::byte& byte = storage[padding[i]];
      byte = std::byte{0x40};
      INFO("byte " << padding[i]);
      REQUIRE(CheckPadding(layout, storage.data()).code() == absl::StatusCode::kDataLoss);
      byte = std::byte{0};
    }
    // The tensors are not looked at.
    for (std::byte& byte : storage) {
      if (byte != std::byte{0}) byte = std::byte{0x11};
    }
    REQUIRE(CheckPadding(layout, storage.data()).ok());
  }
}

TEST_CASE("P7: padding that changed is named by layer, stored tensor and byte") {
  const testing::ZooModel model = testing::LayoutZoo().front();
  const WeightLayout layout = WeightLayout::Build(model.spec, model.dtype);
  std::vector<std::byte> storage = Filled(layout);
  // qkv has 50 rows of 40 columns: the last panel lacks 14 rows, each panel 24 columns.
  const int64_t qkv = layout.layer_offsets().qkv;
  const int64_t at = qkv + 3 * 2048 + 2 * 4;  // the last panel's third lane
  REQUIRE(storage[layout.group_offset(1) + at] == std::byte{0});
  storage[layout.group_offset(1) + at] = std::byte{0x3f};
  const absl::Status status = CheckPadding(layout, storage.data());
  INFO(status.ToString());
  REQUIRE(std::string(status.message()) ==
          fmt::format("the padding of qkv in layer 1 changed in this rollout's memory: byte {} of "
                      "the group is 0x3f, not 0",
                      at));
}

}  // namespace tandem
