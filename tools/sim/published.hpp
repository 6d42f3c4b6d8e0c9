// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Figures that others have published, each with its source and the command that predicts it: `collx_sim published`.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace collx::tools {

struct published_figure {
    const char* what;
    double least, most; // GB/s of bus bandwidth, or us
    bool is_time;
    const char* source;
    const char* command; // of collx_sim
    double value() const { return std::sqrt(least * most); }
};

/// Large messages first. No figure was used to fit anything; NCCL's rates and latencies come from its makers.
inline const std::vector<published_figure>& published_figures() {
    static const std::vector<published_figure> rows = {
        {"8 H100, NCCL ring all_reduce, 8 GB", 365, 370, false, "nccl-tests 212, NCCL 1455",
         "-m dgx-h100 --nccl-rates --costs nccl-ring-simple -b 8GB"},
        {"4 H100, NCCL all_reduce", 370, 370, false, "NCCL 1455",
         "-m dgx-h100 --ranks 0,1,2,3 --nccl-rates --costs nccl-ring-simple -b 8GB"},
        {"2 H100, NCCL all_reduce", 370, 370, false, "NCCL 1455",
         "-m dgx-h100 --ranks 0,1 --nccl-rates --costs nccl-ring-simple -b 8GB"},
        {"8 H100, NCCL NVLS all_reduce, 8 GB", 476, 480, false, "nccl-tests 212, 290",
         "-m dgx-h100 --nccl-rates --costs nccl-nvls-hopper -a multicast_two_shot --by-switch -b 8GB"},
        {"7 H100, NCCL NVLS", 460, 460, false, "NCCL 1455",
         "-m dgx-h100 --ranks 0,1,2,3,4,5,6 --nccl-rates --costs nccl-nvls-hopper -a multicast_two_shot --by-switch -b "
         "8GB"},
        {"6 H100, NCCL NVLS", 440, 440, false, "NCCL 1455",
         "-m dgx-h100 --ranks 0,1,2,3,4,5 --nccl-rates --costs nccl-nvls-hopper -a multicast_two_shot --by-switch -b "
         "8GB"},
        {"5 H100, NCCL NVLS", 420, 420, false, "NCCL 1455",
         "-m dgx-h100 --ranks 0,1,2,3,4 --nccl-rates --costs nccl-nvls-hopper -a multicast_two_shot --by-switch -b "
         "8GB"},
        {"8 B300, NCCL NVLS all_reduce (links of a B200)", 845, 845, false, "NCCL 2140",
         "-m hgx-b200 --nccl-rates --costs nccl-nvls-blackwell -a multicast_two_shot --by-switch -b 8GB"},
        {"8 A100, ring all_reduce, 1 GB", 230, 250, false, "third-party pages",
         "-m dgx-a100 --nccl-rates --costs nccl-ring-simple -b 1GB"},
        {"8 H100, MSCCL++ all_reduce, 3 GB", 378, 378, false, "mscclpp perf_ndmv5",
         "-m dgx-h100 --nccl-rates --costs links -b 3GB"},
        {"8 H100, MSCCL++ all_gather, 3 GB", 404, 404, false, "mscclpp perf_ndmv5",
         "-m dgx-h100 --nccl-rates --costs links -c all_gather -b 3GB"},
        {"8 A100, MSCCL++ all_reduce, 1 GB", 244, 244, false, "mscclpp perf_ndmv4",
         "-m dgx-a100 --nccl-rates --costs links -b 1GB"},
        {"8 A100, MSCCL++ all_gather, 1 GB", 255, 255, false, "mscclpp perf_ndmv4",
         "-m dgx-a100 --nccl-rates --costs links -c all_gather -b 1GB"},
        {"8 A100, MSCCL++ all_to_all, 1 GB", 242, 242, false, "mscclpp perf_ndmv4",
         "-m dgx-a100 --nccl-rates --costs links -c all_to_all -b 1GB"},
        {"16 H100 on rails, MSCCL++ all_to_all, 1 GB", 91, 91, false, "mscclpp perf_ndmv5",
         "-m dgx-h100 --hosts 2 --nccl-rates --pxn -c all_to_all -a direct -b 1GB"},
        {"16 A100 on rails, MSCCL++ all_to_all, 1 GB", 43.6, 43.6, false, "mscclpp perf_ndmv4",
         "-m dgx-a100 --hosts 2 --nccl-rates --pxn -c all_to_all -a direct -b 1GB"},
        {"a card of 400 Gbit/s, one way", 46, 48, false, "nccl-tests 119",
         "-m dgx-h100 --hosts 2 --ranks 0,8 --nccl-rates -c broadcast -a binomial -b 1GB"},
        {"2 A100, NCCL ring, one channel, 8 B", 10, 10, true, "nccl-tests 123",
         "-m dgx-a100 --ranks 0,1 --costs nccl-ring-ll+links -b 8"},
        {"4 A100", 16.9, 16.9, true, "nccl-tests 123", "-m dgx-a100 --ranks 0,1,2,3 --costs nccl-ring-ll+links -b 8"},
        {"6 A100", 25.2, 25.2, true, "nccl-tests 123",
         "-m dgx-a100 --ranks 0,1,2,3,4,5 --costs nccl-ring-ll+links -b 8"},
        {"8 A100", 33.7, 33.7, true, "nccl-tests 123", "-m dgx-a100 --costs nccl-ring-ll+links -b 8"},
        {"2 H100, NCCL, 8 B", 6, 6, true, "NCCL 1259", "-m dgx-h100 --ranks 0,1 --costs nccl-ring-ll -b 8"},
        {"8 GB200, NCCL in a graph, 16 B", 9.5, 9.5, true, "NCCL contrib/custom_algos",
         "-m gb200-nvl72 --ranks 0,1,2,3,4,5,6,7 --nccl-rates --costs nccl-ring-ll -b 16"},
        {"the same, 64 KB", 16.6, 16.6, true, "NCCL contrib/custom_algos",
         "-m gb200-nvl72 --ranks 0,1,2,3,4,5,6,7 --nccl-rates --costs nccl-ring-ll -b 64KB"},
        {"the same, 1 MB", 18.2, 18.2, true, "NCCL contrib/custom_algos",
         "-m gb200-nvl72 --ranks 0,1,2,3,4,5,6,7 --nccl-rates --costs nccl-ring-ll -b 1MB"}};
    return rows;
}

/// Returns the table, with the factor between prediction and figure as a geometric mean. predict(row): GB/s or us.
template <class Predict>
std::string published_text(Predict&& predict) {
    char line[200];
    std::string text;
    double logs[2] = {0, 0};
    int counts[2] = {0, 0};
    std::snprintf(line, sizeof line, "%-44s %10s %10s %8s  %s\n", "", "published", "predicted", "error", "source");
    text += line;
    for (const published_figure& row : published_figures()) {
        const double predicted = predict(row);
        const double ratio = predicted / row.value();
        std::snprintf(line, sizeof line, "%-44s %10.4g %10.4g %+6.1f %%  %s\n", row.what, row.value(), predicted,
                      100 * (ratio - 1), row.source);
        text += line;
        logs[row.is_time] += std::abs(std::log(ratio));
        ++counts[row.is_time];
    }
    std::snprintf(line, sizeof line,
                  "factor, geometric mean: %.3f over %d large rows (GB/s), %.3f over %d small (us), ",
                  std::exp(logs[0] / counts[0]), counts[0], std::exp(logs[1] / counts[1]), counts[1]);
    text += line;
    std::snprintf(line, sizeof line, "%.3f over all %d\n", std::exp((logs[0] + logs[1]) / (counts[0] + counts[1])),
                  counts[0] + counts[1]);
    return text + line;
}

} // namespace collx::tools
