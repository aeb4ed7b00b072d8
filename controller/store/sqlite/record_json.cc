#include "controller/store/sqlite/record_json.h"

#include <limits>

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
  // Records that were written before GPUs were supported lack both fields.
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

std::string NumbersToJson(const std::map<std::string, double>& numbers) {
  return nlohmann::json(numbers).dump();
}

std::map<std::string, double> NumbersFromJson(const std::string& text) {
  std::map<std::string, double> numbers;
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return numbers;
  for (const auto& [key, value] : json.items()) {
    numbers[key] =
        value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  }
  return numbers;
}

std::string SegmentsToJson(const std::vector<Segment>& segments) {
  nlohmann::json json = nlohmann::json::array();
  for (const Segment& segment : segments) {
    json.push_back({segment.begin, segment.length, segment.trained, segment.weight_version});
  }
  return json.dump();
}

std::vector<Segment> SegmentsFromJson(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<Segment> segments;
  if (!json.is_array()) return segments;
  for (const nlohmann::json& entry : json) {
    const bool whole = entry.is_array() && entry.size() == 4 && entry[0].is_number_integer() &&
                       entry[1].is_number_integer() && entry[2].is_boolean() &&
                       entry[3].is_number_integer();
    if (!whole) return {};
    segments.push_back({.begin = entry[0].get<int64_t>(),
                        .length = entry[1].get<int64_t>(),
                        .trained = entry[2].get<bool>(),
                        .weight_version = entry[3].get<int64_t>()});
  }
  return segments;
}

}  // namespace tandem
