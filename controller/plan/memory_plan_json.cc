#include "controller/plan/memory_plan_json.h"

#include <nlohmann/json.hpp>

#include "common/base/status_macros.h"

namespace tandem {

std::string MemoryPlanToJson(const MemoryPlan& plan) {
  nlohmann::json phases = nlohmann::json::array();
  for (const PlannedPhase& phase : plan.phases) {
    nlohmann::json lines = nlohmann::json::array();
    for (const MemoryLine& line : phase.lines) {
      lines.push_back({{"role", line.trainer ? "trainer" : "rollout"},
                       {"tag", line.tag},
                       {"location", LocationName(line.location)},
                       {"bytes", line.bytes}});
      if (!line.part.empty()) lines.back()["part"] = line.part;
    }
    phases.push_back({{"phase", phase.phase}, {"bytes", plan.Bytes(phase)}, {"lines", lines}});
  }
  const nlohmann::json json = {
      {"device_bytes", plan.device_bytes},
      {"host_is_device", plan.host_is_device},
      {"fits", plan.fits()},
      {"peak_phase", plan.phases.empty() ? "" : plan.phases[plan.peak].phase},
      {"peak_bytes", plan.peak_bytes()},
      {"sleep_level", plan.sleep_level},
      {"recompute", plan.recompute},
      {"tight", plan.tight},
      {"problem", plan.problem},
      {"phases", phases}};
  return json.dump();
}

absl::StatusOr<MemoryPlan> MemoryPlanFromJson(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    MemoryPlan plan;
    plan.device_bytes = json.at("device_bytes").get<int64_t>();
    plan.host_is_device = json.at("host_is_device").get<bool>();
    plan.sleep_level = json.at("sleep_level").get<int>();
    plan.recompute = json.at("recompute").get<bool>();
    plan.tight = json.at("tight").get<bool>();
    plan.problem = json.at("problem").get<std::string>();
    for (const nlohmann::json& phase : json.at("phases")) {
      PlannedPhase planned{phase.at("phase").get<std::string>(), {}};
      for (const nlohmann::json& line : phase.at("lines")) {
        planned.lines.push_back({line.at("role").get<std::string>() == "trainer",
                                 line.at("tag").get<std::string>(),
                                 LocationOf(line.at("location").get<std::string>()),
                                 line.at("bytes").get<int64_t>(), line.value("part", "")});
      }
      if (planned.phase == json.at("peak_phase").get<std::string>()) {
        plan.peak = plan.phases.size();
      }
      plan.phases.push_back(std::move(planned));
    }
    return plan;
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument("this is no memory plan: {}", error.what());
  }
}

}  // namespace tandem
