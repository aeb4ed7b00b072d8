#include "controller/store/sqlite/record_json.h"

#include <limits>

#include <nlohmann/json.hpp>

#include "common/base/json_integer.h"

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
                              static_cast<Location>(IntegerOf<int>(entry.at(1))),
                              IntegerOf<int64_t>(entry.at(2)), IntegerOf<int64_t>(entry.at(3))});
  }
  ledger.device_bytes = IntegerOf<int64_t>(json.at("device"));
  ledger.device_peak_bytes = IntegerOf<int64_t>(json.at("device_peak"));
  ledger.memory_bytes = IntegerOf<int64_t>(json.at("memory"));
  ledger.memory_peak_bytes = IntegerOf<int64_t>(json.at("memory_peak"));
  ledger.process_bytes = IntegerOf<int64_t>(json.at("process"));
  ledger.process_peak_bytes = IntegerOf<int64_t>(json.at("process_peak"));
  ledger.baseline_bytes = IntegerOf<int64_t>(json.at("baseline"));
  ledger.resident_bytes = IntegerOf<int64_t>(json.at("resident"));
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
                         IntegerOf<int>(worker.at("rank")), LedgerFromJson(worker.at("ledger"))});
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

std::string CountsToJson(const std::vector<int64_t>& counts) {
  return nlohmann::json(counts).dump();
}

std::vector<int64_t> CountsFromJson(const std::string& text) {
  std::vector<int64_t> counts;
  try {
    for (const nlohmann::json& count : nlohmann::json::parse(text)) {
      counts.push_back(IntegerOf<int64_t>(count));
    }
  } catch (const nlohmann::json::exception&) {
    counts.clear();
  }
  return counts;
}

std::string SegmentsToJson(const std::vector<Segment>& segments) {
  nlohmann::json json = nlohmann::json::array();
  for (const Segment& segment : segments) {
    json.push_back({segment.begin, segment.length, segment.trained, segment.weight_version});
  }
  return json.dump();
}

std::vector<Segment> SegmentsFromJson(const std::string& text) {
  std::vector<Segment> segments;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (!json.is_array()) return {};
    for (const nlohmann::json& entry : json) {
      if (!entry.is_array() || entry.size() != 4) return {};
      segments.push_back({.begin = IntegerOf<int64_t>(entry[0]),
                          .length = IntegerOf<int64_t>(entry[1]),
                          .trained = entry[2].get<bool>(),
                          .weight_version = IntegerOf<int64_t>(entry[3])});
    }
  } catch (const nlohmann::json::exception&) {
    segments.clear();
  }
  return segments;
}

}  // namespace tandem
