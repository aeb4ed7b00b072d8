// The weights of a tiny model in memory, as a rollout holds them.
#pragma once

#include <memory>

#include <catch2/catch.hpp>

#include "common/device/device.h"
#include "common/formats/safetensors.h"
#include "common/weights/layout.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace tandem::testing {

// The weights of a tiny model, in a full storage.
class TinyWeights {
 public:
  TinyWeights(const TinyModelOptions& options, DType dtype)
      : spec(TinyModelSpec(options)), layout(WeightLayout::Build(spec, dtype)) {
    REQUIRE(WriteTinyModel(dir.path().string(), options).ok());
    const auto file = SafetensorsFile::Open((dir.path() / "model.safetensors").string()).value();
    region = HostDevice()->Reserve("weights", layout.total_bytes(), nullptr).value();
    REQUIRE(region->Map().ok());
    for (const TensorPlace& place : layout.places()) {
      const TensorView view = file->View(place.name).value();
      REQUIRE(view.dtype == dtype);
      layout.WriteRows(region->data() + layout.group_offset(place.layer), place, 0, place.rows(),
                       view.data);
    }
  }

  TempDir dir;
  ModelSpec spec;
  WeightLayout layout;
  std::unique_ptr<MemoryRegion> region;
};

}  // namespace tandem::testing
