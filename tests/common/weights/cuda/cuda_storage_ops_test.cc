// A storage on an emulated GPU against one in host memory, operation by operation.
#include "common/weights/cuda/cuda_storage_ops.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <catch2/catch.hpp>

#include "common/weights/layout.h"
#include "tests/common/weights/layout_zoo.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/emulator/emulator.h"
#include "tests/fakes/memory_weights.h"

namespace tandem {
namespace {

using emulator::EmulatedCuda;
using testing::MemoryWeights;

struct StorageOpsFixture {
  explicit StorageOpsFixture(const testing::ZooModel& model)
      : layout(WeightLayout::Build(model.spec, model.dtype, WeightFormat::kRowMajor)),
        storage(*cuda.Malloc(layout.total_bytes())),
        ops(*CreateCudaStorageOps(&layout, storage, context.get())) {
    memset(storage, 0, static_cast<size_t>(layout.total_bytes()));
    for (const TensorPlace& place : layout.places()) places.push_back(&place);
  }
  // Every row, in pieces of at most `step` rows, the last first.
  std::vector<DenseRows> Pieces(int64_t step) {
    std::vector<DenseRows> pieces;
    for (const TensorPlace& place : layout.places()) {
      const int64_t rows = place.rows();
      if (rows == 0) continue;
      const int64_t row_bytes = MemoryWeights::Bytes(layout, place) / rows;
      for (int64_t row = (rows - 1) / step * step; row >= 0; row -= step) {
        pieces.push_back({&place, row, std::min(step, rows - row),
                          weights.tensor(place.name) + row * row_bytes});
      }
    }
    return pieces;
  }
  std::vector<std::byte> Host() const {
    return std::vector<std::byte>(storage, storage + layout.total_bytes());
  }

  EmulatedCuda cuda;
  std::unique_ptr<CudaContext> context = *CudaContext::Create(&cuda, 0);
  WeightLayout layout;
  MemoryWeights weights{layout, 5};
  std::byte* storage;
  std::unique_ptr<StorageOps> ops;
  std::vector<const TensorPlace*> places;
};

}  // namespace

TEST_CASE("rows reach a device's storage from either memory, and are read and digested there") {
  for (const testing::ZooModel& model : testing::LayoutZoo()) {
    INFO(model.name);
    StorageOpsFixture f(model);
    std::vector<std::byte> want(static_cast<size_t>(f.layout.total_bytes()));
    std::vector<Digest> digests;
    for (const TensorPlace& place : f.layout.places()) {
      f.layout.WriteRows(want.data() + f.layout.group_offset(place.layer), place, 0, place.rows(),
                         f.weights.tensor(place.name));
      digests.push_back(
          DigestOf(f.weights.tensor(place.name), MemoryWeights::Bytes(f.layout, place)));
    }
    for (const Location location : {Location::kDevice, Location::kHost}) {
      REQUIRE(f.ops->Scramble(f.places).ok());
      REQUIRE(f.ops->CheckPadding().ok());
      const int64_t before = emulator::KernelsRun();
      REQUIRE(f.ops->StoreRows(f.Pieces(16), location).ok());
      REQUIRE(emulator::KernelsRun() == before + (location == Location::kDevice ? 1 : 0));
      REQUIRE(f.Host() == want);
      REQUIRE(f.ops->DigestStored(f.places).value() == digests);
      REQUIRE(f.ops->CheckPadding().ok());
    }
    for (const TensorPlace* place : f.places) {
      if (place->rows() * place->cols() == 0) continue;
      const int64_t row_bytes = MemoryWeights::Bytes(f.layout, *place) / place->rows();
      std::vector<std::byte> row(static_cast<size_t>(row_bytes));
      REQUIRE(f.ops->ReadRows(*place, place->rows() - 1, 1, row.data()).ok());
      REQUIRE(memcmp(row.data(), f.weights.tensor(place->name) + (place->rows() - 1) * row_bytes,
                     row.size()) == 0);
    }
  }
}

TEST_CASE("scrambling fills every tensor with NaN, in one launch, and no padding") {
  for (const testing::ZooModel& model : testing::LayoutZoo()) {
    INFO(model.name);
    StorageOpsFixture f(model);
    const int64_t before = emulator::KernelsRun();
    REQUIRE(f.ops->Scramble(f.places).ok());
    REQUIRE(emulator::KernelsRun() == before + 1);
    std::vector<std::byte> want(static_cast<size_t>(f.layout.total_bytes()));
    for (const TensorPlace* place : f.places) {
      const std::vector<std::byte> nan(static_cast<size_t>(MemoryWeights::Bytes(f.layout, *place)),
                                       std::byte{0xff});
      f.layout.WriteRows(want.data() + f.layout.group_offset(place->layer), *place, 0,
                         place->rows(), nan.data());
    }
    REQUIRE(f.Host() == want);
  }
}

TEST_CASE("a byte between tensors that changed is named as on a CPU") {
  const testing::ZooModel model = testing::LayoutZoo().front();
  StorageOpsFixture f(model);
  REQUIRE(f.ops->Scramble(f.places).ok());
  for (const PaddingGap& gap : PaddingGaps(f.layout)) {
    for (const int64_t at : {gap.begin, gap.end - 1}) {
      std::byte& byte = f.storage[f.layout.group_offset(gap.layer) + at];
      byte = std::byte{0x40};
      const absl::Status status = f.ops->CheckPadding();
      REQUIRE(status.code() == absl::StatusCode::kDataLoss);
      REQUIRE(status == CheckPadding(f.layout, f.storage));
      byte = std::byte{0};
    }
  }
  REQUIRE(f.ops->CheckPadding().ok());
}

TEST_CASE("a layout in panels is refused, and an error of the device comes back") {
  const testing::ZooModel model = testing::LayoutZoo().front();
  const WeightLayout panels = WeightLayout::Build(model.spec, model.dtype);
  StorageOpsFixture f(model);
  const auto refused = CreateCudaStorageOps(&panels, f.storage, f.context.get());
  REQUIRE(refused.status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(f.ops->StoreRows(f.Pieces(100), Location::kDevice).ok());
  for (const char* call : {"Fill", "Copy", "Synchronize"}) {
    INFO(call);
    f.cuda.FailCall(call, absl::InternalError("the device is lost"));
    REQUIRE(f.ops->DigestStored(f.places).status().message() == "the device is lost");
    REQUIRE(f.ops->DigestStored(f.places).ok());
  }
  f.cuda.FailCall("Malloc", absl::ResourceExhaustedError("full"));
  REQUIRE(CreateCudaStorageOps(&f.layout, f.storage, f.context.get()).status().code() ==
          absl::StatusCode::kResourceExhausted);
}

}  // namespace tandem
