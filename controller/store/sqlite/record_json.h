// The columns of run.db that hold JSON.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/types/sample.h"
#include "controller/store/run_store.h"

namespace tandem {

// The readers return an empty result for a text that the matching writer did not write.

// The memory ledgers of the workers in a phase.
std::string WorkersToJson(const std::vector<WorkerMemory>& workers);
std::vector<WorkerMemory> WorkersFromJson(const std::string& text);

// JSON has no NaN: it is written as null, which reads back as NaN.
std::string NumbersToJson(const std::map<std::string, double>& numbers);
std::map<std::string, double> NumbersFromJson(const std::string& text);

// [count, count, ...] of a histogram's bins
std::string CountsToJson(const std::vector<int64_t>& counts);
std::vector<int64_t> CountsFromJson(const std::string& text);

// [[begin, length, trained, weight version], ...]
std::string SegmentsToJson(const std::vector<Segment>& segments);
std::vector<Segment> SegmentsFromJson(const std::string& text);

}  // namespace tandem
