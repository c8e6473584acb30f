"""Optional packages that are built on the core; `vllm_harness._extensions` lists them.

Their errors:

    HarnessError
        BundleError                       bundles.place
        ClusterError, NotRun              cluster.ray_cluster
        ShippingError                     cluster.shipping
        SuiteError                        cluster.suites.on_node
        NoReferenceError                  weights.check
        NoStandIn                         upstream.stand_ins
        RemoteCallError                   upstream.vllm_process
        UsageError
            ForeignError                  foreign.foreign
"""
