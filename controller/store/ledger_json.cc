#include "controller/store/ledger_json.h"

#include <nlohmann/json.hpp>

namespace tandem {
namespace {

nlohmann::json LedgerToJson(const LedgerSnapshot& ledger) {
  nlohmann::json entries = nlohmann::json::array();
  for (const LedgerEntry& entry : ledger.entries) {
    entries.push_back(
        {entry.tag, static_cast<int>(entry.location), entry.current_bytes, entry.peak_bytes});
  }
  return {{"entries", entries},
          {"device", ledger.device_bytes},
          {"device_peak", ledger.device_peak_bytes},
          {"memory", ledger.memory_bytes},
          {"memory_peak", ledger.memory_peak_bytes},
          {"process", ledger.process_bytes},
          {"process_peak", ledger.process_peak_bytes},
          {"baseline", ledger.baseline_bytes},
          {"resident", ledger.resident_bytes},
          {"driver_total", ledger.driver_total_bytes},
          {"driver_free", ledger.driver_free_bytes}};
}

LedgerSnapshot LedgerFromJson(const nlohmann::json& json) {
  LedgerSnapshot ledger;
  for (const nlohmann::json& entry : json.at("entries")) {
    ledger.entries.push_back({entry.at(0).get<std::string>(),
                              static_cast<Location>(entry.at(1).get<int>()),
                              entry.at(2).get<int64_t>(), entry.at(3).get<int64_t>()});
  }
  ledger.device_bytes = json.at("device").get<int64_t>();
  ledger.device_peak_bytes = json.at("device_peak").get<int64_t>();
  ledger.memory_bytes = json.at("memory").get<int64_t>();
  ledger.memory_peak_bytes = json.at("memory_peak").get<int64_t>();
  ledger.process_bytes = json.at("process").get<int64_t>();
  ledger.process_peak_bytes = json.at("process_peak").get<int64_t>();
  ledger.baseline_bytes = json.at("baseline").get<int64_t>();
  ledger.resident_bytes = json.at("resident").get<int64_t>();
  // Records from before there were GPUs have neither.
  ledger.driver_total_bytes = json.value("driver_total", int64_t{0});
  ledger.driver_free_bytes = json.value("driver_free", int64_t{0});
  return ledger;
}

}  // namespace

std::string WorkersToJson(const std::vector<WorkerMemory>& workers) {
  nlohmann::json json = nlohmann::json::array();
  for (const WorkerMemory& worker : workers) {
    json.push_back({{"role", worker.trainer ? "trainer" : "rollout"},
                    {"rank", worker.rank},
                    {"ledger", LedgerToJson(worker.ledger)}});
  }
  return json.dump();
}

std::vector<WorkerMemory> WorkersFromJson(const std::string& text) {
  std::vector<WorkerMemory> workers;
  try {
    for (const nlohmann::json& worker : nlohmann::json::parse(text)) {
      workers.push_back({worker.at("role").get<std::string>() == "trainer",
                         worker.at("rank").get<int>(), LedgerFromJson(worker.at("ledger"))});
    }
  } catch (const nlohmann::json::exception&) {
    workers.clear();
  }
  return workers;
}

}  // namespace tandem
