// Writes a run's metrics for TensorBoard, and the file format that this needs.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "controller/store/record_file.h"
#include "controller/store/trackers/trackers.h"

namespace tandem {

// CRC-32C (Castagnoli polynomial 0x1EDC6F41, RFC 3720 appendix B.4).
uint32_t Crc32c(const std::string& bytes);

// The masked form of TFRecord, ((crc >> 15) | (crc << 17)) + 0xa282ead8, which is safe for data
// that contains checksums.
uint32_t MaskedCrc32c(const std::string& bytes);

// The bytes of a TensorBoard event file: TFRecords around tensorflow.Event messages.
//
// Record: length (u64, little endian), masked CRC-32C of the length, data, masked CRC-32C of the
// data. Event (protobuf): wall_time = 1 (double), step = 2 (int64), file_version = 3 (string),
// summary = 5, session_log = 7; SessionLog: status = 1 (1: START); Summary: value = 1; Value: tag =
// 1 (string), simple_value = 2 (float).
std::string TfRecord(const std::string& data);

// The first event of every file.
std::string FileVersionEvent(double wall_time_seconds);

// A process continues (or begins) at `step`: readers drop scalars of that step and later ones.
std::string SessionStartEvent(double wall_time_seconds, int64_t step);

std::string ScalarsEvent(double wall_time_seconds, int64_t step, const Metrics& metrics);

// Writes scalars for TensorBoard, to one event file per process.
class TensorBoardTracker : public Tracker {
 public:
  // Creates `dir` and a file events.out.tfevents.<seconds>.<host> in it. `clock` must outlive the
  // tracker.
  TensorBoardTracker(const std::string& dir, Clock& clock);

  void Log(int64_t step, const Metrics& metrics) override;
  // Writes a session start at `step` + 1, which makes TensorBoard drop its scalars from that step
  // on.
  absl::Status Rewind(int64_t step) override;
  absl::Status Flush() override;

  const std::string& path() const { return path_; }

 private:
  void Write(const std::string& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mutex_);

  Clock& clock_;
  const std::string path_;
  const std::string header_;  // the first record of the file
  Mutex file_mutex_;
  RecordFile file_ ABSL_GUARDED_BY(file_mutex_);
  bool has_header_ ABSL_GUARDED_BY(file_mutex_) = false;
};

}  // namespace tandem
