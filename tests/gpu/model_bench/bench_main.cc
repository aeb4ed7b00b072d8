#include "tests/gpu/model_bench/bench_main.h"

#include <cstdio>
#include <memory>
#include <utility>

#include "common/base/status.h"
#include "tests/gpu/gpu.h"

namespace tandem::testing {
namespace {

absl::Status Usage(const std::vector<BenchMode>& modes) {
  std::string names;
  for (const BenchMode& mode : modes) names += (names.empty() ? "" : "|") + mode.name;
  return InvalidArgument("arguments: {} [0.6b|4b|8b|tiny ...]", names);
}

absl::Status Run(std::unique_ptr<CudaApi> cuda,
                 const std::vector<std::string>& arguments,
                 const std::vector<BenchMode>& modes) {
  const BenchMode* chosen = nullptr;
  for (const BenchMode& mode : modes) {
    if (!arguments.empty() && arguments[0] == mode.name) chosen = &mode;
  }
  if (chosen == nullptr) return Usage(modes);
  std::vector<std::string> names(arguments.begin() + 1, arguments.end());
  if (names.empty()) names = chosen->models;
  std::vector<BenchModel> models;
  for (const std::string& name : names) {
    TANDEM_ASSIGN_OR_RETURN(models.emplace_back(), FindBenchModel(name));
  }
  TANDEM_ASSIGN_OR_RETURN(const BenchGpu gpu, OpenBenchGpu(std::move(cuda)));
  Figures figures;
  for (const BenchModel& model : models) {
    TANDEM_RETURN_IF_ERROR(chosen->bench(gpu, model, figures));
  }
  return figures.Check();
}

}  // namespace

int BenchMain(int argc, char** argv, const std::vector<BenchMode>& modes) {
  auto gpu = OpenGpu();
  if (!gpu.ok()) {
    std::printf("no GPU: %s\n", std::string(gpu.status().message()).c_str());
    return kNoGpu;
  }
  const absl::Status status = Run(*std::move(gpu), {argv + 1, argv + argc}, modes);
  if (status.ok()) return 0;
  const std::string why(status.message());
  if (absl::IsUnavailable(status)) return Skipped(why);
  std::printf("%s\n", why.c_str());
  return 1;
}

}  // namespace tandem::testing
