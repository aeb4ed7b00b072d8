// Every model of the golden set loads: config understood, all tensors there, rows readable.
#include <filesystem>

#include <catch2/catch.hpp>

#include "common/formats/hf_checkpoint.h"
#include "tests/support/golden.h"

namespace tandem {

TEST_CASE("Golden models load", "[golden]") {
  const std::filesystem::path models = testing::GoldenDir() / "models";
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    if (!entry.is_directory()) continue;
    CAPTURE(entry.path().string());
    const absl::StatusOr<ModelSpec> spec = LoadModelSpec(entry.path());
    INFO(spec.status().ToString());
    REQUIRE(spec.ok());
    const auto checkpoint = HfCheckpoint::Open(entry.path(), *spec);
    INFO(checkpoint.status().ToString());
    REQUIRE(checkpoint.ok());
    for (const TensorSpec& tensor : (*checkpoint)->tensors()) {
      std::vector<float> values(static_cast<size_t>(NumElements(tensor.shape)));
      REQUIRE((*checkpoint)
                  ->ReadRows(tensor.name, 0, tensor.shape[0], DType::kFloat32, values.data())
                  .ok());
    }
    ++count;
  }
  REQUIRE(count > 0);
}

}  // namespace tandem
