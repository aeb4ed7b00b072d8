// The bytes of a TensorBoard event file: TFRecords around tensorflow.Event messages.
//
// Record: length (u64, little endian), masked CRC-32C of the length, data, masked CRC-32C of the
// data. Event (protobuf): wall_time = 1 (double), step = 2 (int64), file_version = 3 (string),
// summary = 5, session_log = 7; SessionLog: status = 1 (1: START); Summary: value = 1; Value: tag =
// 1 (string), simple_value = 2 (float).
#pragma once

#include <cstdint>
#include <string>

#include "controller/store/tracker.h"

namespace tandem {

std::string TfRecord(const std::string& data);

// The first event of every file.
std::string FileVersionEvent(double wall_time_seconds);

// A process goes on (or begins) at `step`: readers drop scalars of that step and later ones.
std::string SessionStartEvent(double wall_time_seconds, int64_t step);

std::string ScalarsEvent(double wall_time_seconds, int64_t step, const Metrics& metrics);

}  // namespace tandem
