#include "common/process/exit_code.h"

#include <cerrno>
#include <fstream>

#include <catch2/catch.hpp>

#include "common/base/disk_refusal.h"
#include "common/base/status.h"
#include "tests/support/temp_dir.h"

namespace tandem {

TEST_CASE("Exit codes tell configuration, inputs, disks, peers and bugs apart", "[base]") {
  using enum FailedAt;
  REQUIRE(ExitCodeAt(kRun, absl::OkStatus()) == 0);
  REQUIRE(ExitCodeAt(kConfig, absl::NotFoundError("no such config")) == 66);
  REQUIRE(ExitCodeAt(kConfig, absl::InvalidArgumentError("unknown key")) == 64);
  REQUIRE(ExitCodeAt(kConfig, absl::PermissionDeniedError("users share the run directory")) == 74);
  REQUIRE(ExitCodeAt(kConfig, absl::AlreadyExistsError("another controller")) == 64);
  REQUIRE(ExitCodeAt(kInputs, absl::InvalidArgumentError("no JSON")) == 65);
  REQUIRE(ExitCodeAt(kInputs, absl::UnimplementedError("mamba")) == 65);
  REQUIRE(ExitCodeAt(kInputs, absl::DataLossError("cut short")) == 65);
  REQUIRE(ExitCodeAt(kInputs, absl::NotFoundError("no tokenizer.json")) == 66);
  REQUIRE(ExitCodeAt(kInputs, absl::AlreadyExistsError("another controller")) == 64);
  REQUIRE(ExitCodeAt(kInputs, absl::PermissionDeniedError("read-only")) == 74);
  REQUIRE(ExitCodeAt(kRun, absl::AlreadyExistsError("port in use")) == 64);
  REQUIRE(ExitCodeAt(kRun, absl::UnavailableError("trainer 0")) == 69);
  REQUIRE(ExitCodeAt(kRun, absl::DeadlineExceededError("trainer 0")) == 69);
  REQUIRE(ExitCodeAt(kRun, absl::DataLossError("log-probs differ")) == 70);
  REQUIRE(ExitCodeAt(kRun, absl::InternalError("bug")) == 70);
  REQUIRE(ExitCodeAt(kRun, absl::OutOfRangeError("no group differs")) == 70);
  REQUIRE(ExitCodeAt(kRun, absl::ResourceExhaustedError("disk full")) == 74);
}

TEST_CASE("A disk that fails is told from damaged data, wherever it does", "[base]") {
  for (const int error : {EIO, ENOSPC, EROFS}) {
    INFO(error);
    const absl::Status failed =
        MarkedByErrno(absl::Status(IoErrorCode(error), "cannot write"), error);
    for (const FailedAt stage : {FailedAt::kConfig, FailedAt::kInputs, FailedAt::kRun}) {
      REQUIRE(ExitCodeAt(stage, failed) == 74);
    }
  }
}

TEST_CASE("A folder that cannot be made is not a missing input", "[base]") {
  testing::TempDir dir;
  REQUIRE(MakeFolder(dir.path() / "a" / "b").ok());
  REQUIRE(MakeFolder(dir.path() / "a" / "b").ok());
  std::ofstream(dir.path() / "file") << "text";
  for (const std::string& path :
       {(dir.path() / "file" / "run").string(), std::string("/proc/run")}) {
    const absl::Status refused = MakeFolder(path);
    INFO(refused.ToString());
    REQUIRE(absl::IsPermissionDenied(refused));
    REQUIRE(std::string(refused.message()).find(path) != std::string::npos);
    REQUIRE(ExitCodeAt(FailedAt::kInputs, refused) == 74);
  }
}

TEST_CASE("No error of a local file looks like the loss of a peer", "[base]") {
  REQUIRE(IoErrorCode(ENOSPC) == absl::StatusCode::kResourceExhausted);
  REQUIRE(IoErrorCode(EDQUOT) == absl::StatusCode::kResourceExhausted);
  REQUIRE(IoErrorCode(EFBIG) == absl::StatusCode::kResourceExhausted);
  REQUIRE(IoErrorCode(EMFILE) == absl::StatusCode::kResourceExhausted);
  REQUIRE(IoErrorCode(ENOENT) == absl::StatusCode::kNotFound);
  REQUIRE(IoErrorCode(EACCES) == absl::StatusCode::kPermissionDenied);
  REQUIRE(IoErrorCode(EROFS) == absl::StatusCode::kPermissionDenied);
  REQUIRE(IoErrorCode(EISDIR) == absl::StatusCode::kInvalidArgument);
  REQUIRE(IoErrorCode(EIO) == absl::StatusCode::kDataLoss);
  for (int error = 1; error < 134; ++error) {
    const absl::StatusCode code = IoErrorCode(error);
    INFO(error);
    REQUIRE(code != absl::StatusCode::kOk);
    REQUIRE(code != absl::StatusCode::kUnavailable);
    REQUIRE(code != absl::StatusCode::kAborted);
    REQUIRE(code != absl::StatusCode::kCancelled);
    REQUIRE(code != absl::StatusCode::kDeadlineExceeded);
    REQUIRE(code != absl::StatusCode::kFailedPrecondition);
  }
}

}  // namespace tandem
