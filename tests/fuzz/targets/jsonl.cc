// A data file, read as rows of prompts.
#include "common/formats/files.h"
#include "controller/data/jsonl_rows.h"
#include "tests/fuzz/input_file.h"
#include "tests/fuzz/target.h"

TANDEM_FUZZ_TARGET(jsonl) {
  const tandem::fuzz::InputFile file(input);
  (void)tandem::ReadJsonlRows(file.path(), {}, -1);
}
