import { describe, expect, it } from "vitest";
import { firstNode, launchedOptions } from "../../src/launcher.js";

const master = { MASTER_ADDR: "node1", MASTER_PORT: "1234" };
const found = { masterAddress: "node1", masterPort: 1234, servesRendezvous: true, attempt: "" };

describe("launchers", () => {
  it.each([
    ["torchrun, PyTorchJob", { RANK: "2", WORLD_SIZE: "4", ...master }, { rank: 2, worldSize: 4, ...found }],
    [
      "torchrun with a rendezvous of its own, after a restart",
      {
        RANK: "0",
        WORLD_SIZE: "2",
        ...master,
        TORCHELASTIC_USE_AGENT_STORE: "True",
        TORCHELASTIC_RESTART_COUNT: "1",
      },
      { rank: 0, worldSize: 2, ...found, servesRendezvous: false, attempt: "1" },
    ],
    [
      "torchrun whose rendezvous is not shared",
      {
        RANK: "0",
        WORLD_SIZE: "2",
        ...master,
        TORCHELASTIC_USE_AGENT_STORE: "True",
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE: "1",
      },
      { rank: 0, worldSize: 2, ...found },
    ],
    [
      "srun",
      {
        SLURM_PROCID: "1",
        SLURM_STEP_NUM_TASKS: "8",
        SLURM_STEP_NODELIST: "gpu[07-09,12],cpu1",
        SLURM_JOB_ID: "40005",
      },
      { rank: 1, worldSize: 8, ...found, masterAddress: "gpu07", masterPort: 12_000 + 4005 },
    ],
    [
      "Open MPI on one machine",
      { OMPI_COMM_WORLD_RANK: "1", OMPI_COMM_WORLD_SIZE: "2", OMPI_COMM_WORLD_LOCAL_SIZE: "2" },
      { rank: 1, worldSize: 2, ...found, masterAddress: "127.0.0.1", masterPort: 29_500 },
    ],
    ["MPICH", { PMI_RANK: "0", PMI_SIZE: "2", ...master }, { rank: 0, worldSize: 2, ...found }],
    [
      "RANK beside a launcher's own variables, and deadlines",
      {
        RANK: "1",
        WORLD_SIZE: "2",
        ...master,
        SLURM_PROCID: "0",
        SLURM_STEP_NUM_TASKS: "16",
        ASTRA_COLLECTIVE_TIMEOUT: "60",
        ASTRA_CONNECT_TIMEOUT: "7",
      },
      { rank: 1, worldSize: 2, ...found, timeout: 60, connectTimeout: 7 },
    ],
    ["no launcher", {}, null],
    ["a group of one", { RANK: "0", WORLD_SIZE: "1" }, null],
    // A batch script has Slurm's variables, but is not a task of srun.
    ["a batch script of Slurm", { SLURM_PROCID: "0", SLURM_NTASKS: "8", SLURM_JOB_ID: "1" }, null],
  ])("%s", (_, environment, options) => {
    expect(launchedOptions(environment)).toEqual(options);
  });

  it.each([
    [
      { RANK: "x", WORLD_SIZE: "2", ...master },
      'the variable RANK must be a whole number of at least 0, got "x"',
    ],
    [{ RANK: "0", ...master }, "the variable WORLD_SIZE must be a whole number of at least 1, got undefined"],
    [{ RANK: "2", WORLD_SIZE: "2", ...master }, "RANK is 2, and WORLD_SIZE is 2; ranks count from 0"],
    [{ RANK: "0", WORLD_SIZE: "2" }, "RANK indicates one of several processes, but MASTER_ADDR is not set"],
    [
      { RANK: "0", WORLD_SIZE: "2", MASTER_ADDR: "node1", MASTER_PORT: "0" },
      "the variable MASTER_PORT must be a whole number of at least 1",
    ],
  ])("refuses %j", (environment, message) => {
    expect(() => launchedOptions(environment)).toThrow(`distributed: ${message}`);
  });

  it.each([
    ["node1", "node1"],
    ["node1,node2", "node1"],
    ["node[01-03,7],other", "node01"],
    ["rack2-node[3,5]-ib0,x", "rack2-node3-ib0"],
    ["", ""],
  ])("the first of the machines %s is %s", (list, first) => {
    expect(firstNode(list)).toBe(first);
  });
});
