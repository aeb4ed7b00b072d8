#include "controller/cli/plan_command.h"

#include <cctype>
#include <cmath>
#include <filesystem>
#include <utility>

#include <absl/strings/numbers.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/status_macros.h"
#include "common/config/loaded_config.h"
#include "common/device/device_memory.h"
#include "common/formats/atomic_file.h"
#include "common/process/exit_code.h"
#include "controller/plan/lora_checks.h"
#include "controller/plan/memory_plan_json.h"
#include "controller/plan/plan_advice.h"
#include "controller/plan/plan_input.h"
#include "controller/report/memory_html.h"
#include "controller/report/memory_text.h"

namespace tandem {
namespace {

constexpr double kLeastBytes = 1 << 20;

// Bytes of one unit; 0: there is no such unit.
double UnitBytes(const std::string& unit) {
  if (unit.empty() || unit == "B" || unit == "bytes") return 1;
  static const std::string prefixes = "KMGT";
  const size_t power = prefixes.find(static_cast<char>(std::toupper(unit[0])));
  if (power == std::string::npos) return 0;
  const std::string rest = unit.substr(1);
  if (rest == "iB") return std::pow(1024.0, static_cast<double>(power + 1));
  if (rest == "B") return std::pow(1000.0, static_cast<double>(power + 1));
  return 0;
}

nlohmann::json AdviceJson(const std::vector<PlanAdvice>& advices) {
  nlohmann::json json = nlohmann::json::array();
  for (const PlanAdvice& advice : advices) {
    json.push_back({{"setting", advice.setting},
                    {"saved_bytes", advice.saved_bytes},
                    {"kv_pool", advice.pool},
                    {"enough", advice.enough}});
  }
  return json;
}

// What the flags and the file say.
struct Configured {
  v1::Config config;
  int64_t bytes = 0;
  Device device = Device::kShareOfHost;
};

absl::StatusOr<Configured> Configure(const PlanOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(LoadedConfig loaded, LoadConfig(options.config, options.overrides));
  TANDEM_RETURN_IF_ERROR(ValidateValues(loaded.config, loaded.origins));
  Configured configured{.config = std::move(loaded.config)};
  if (options.device_memory.empty() && PlansForGpu(configured.config)) {
    return InvalidArgument(
        "trainer.device=cuda, and this command asks no driver: say with --device-memory how much "
        "memory a GPU of the run has, such as 80GiB (nvidia-smi shows it)");
  }
  if (options.device_memory.empty()) {
    const auto pairs = static_cast<int>(configured.config.cluster().trainers());
    configured.bytes = CpuDeviceMemoryBytes(pairs);
  } else {
    const absl::StatusOr<int64_t> bytes = ParseBytes(options.device_memory);
    TANDEM_RETURN_IF_ERROR(Annotate(bytes.status(), "--device-memory"));
    configured.bytes = *bytes;
    configured.device = Device::kOfPair;
  }
  return configured;
}

absl::Status ModelError(const absl::Status& status) {
  if (!absl::IsNotFound(status)) return Annotate(status, "model.path");
  std::error_code error;
  return MakeStatus(status.code(),
                    "model.path: {}; a relative path starts at the current directory, {}",
                    std::string(status.message()), std::filesystem::current_path(error).string());
}

PlanOutcome Failed(FailedAt stage, const absl::Status& status) {
  return {.exit_code = ExitCodeAt(stage, status), .error = status};
}

}  // namespace

absl::StatusOr<int64_t> ParseBytes(const std::string& text) {
  size_t digits = text.find_first_not_of("0123456789.");
  if (digits == std::string::npos) digits = text.size();
  size_t unit = text.find_first_not_of(' ', digits);
  if (unit == std::string::npos) unit = text.size();
  double number = 0;
  const double factor = UnitBytes(text.substr(unit));
  const bool parsed = absl::SimpleAtod(text.substr(0, digits), &number);
  if (!parsed || factor == 0) {
    return InvalidArgument(
        "\"{}\" is no amount of memory; write 80GiB, 512MiB (powers of 1024), 80GB, 512MB (powers "
        "of 1000) or a number of bytes",
        text);
  }
  const double bytes = number * factor;
  if (bytes < kLeastBytes) {
    return InvalidArgument(
        "\"{}\" is {:g} bytes, less than any device has; write the unit, such as 80GiB or 512MiB",
        text, bytes);
  }
  if (bytes > 1e18) return InvalidArgument("\"{}\" is more memory than a device has", text);
  return static_cast<int64_t>(bytes);
}

PlanOutcome PlanCommand(const PlanOptions& options, std::ostream& out) {
  const absl::StatusOr<Configured> input = Configure(options);
  if (!input.ok()) return Failed(FailedAt::kConfig, input.status());
  const absl::StatusOr<ModelSpec> spec = LoadModelSpec(input->config.model().path());
  if (!spec.ok()) return Failed(FailedAt::kInputs, ModelError(spec.status()));
  const absl::Status lora = CheckLoraInputs(input->config, *spec);
  if (!lora.ok()) return Failed(FailedAt::kInputs, lora);
  const std::string warning = LoraWarning(input->config);
  const MemoryPlan plan =
      PlanMemory(*spec, MakeMemoryPlanInput(*spec, input->config, input->bytes));
  const PlanAdvices advices = AdviseOnMemory(*spec, input->config, input->bytes, input->device);
  if (options.json) {
    nlohmann::json json = nlohmann::json::parse(MemoryPlanToJson(plan));
    json["advice"] = AdviceJson(advices.alone);
    json["together"] = AdviceJson(advices.together);
    if (!warning.empty()) json["warning"] = warning;
    out << json.dump() << "\n";
  } else {
    if (!warning.empty()) out << "warning: " << warning << "\n";
    out << MemoryPlanText(plan);
    if (!plan.fits()) out << AdviceText(advices);
  }
  if (!options.html.empty()) {
    const absl::Status written =
        WriteFileAtomically(options.html, MemoryHtml(options.config, {.plan = plan}, advices));
    if (!written.ok()) return Failed(FailedAt::kRun, written);
  }
  return {.exit_code = plan.fits() ? kExitDone : kExitDoesNotFit};
}

}  // namespace tandem
