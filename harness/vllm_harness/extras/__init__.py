"""What is built on the core and can be left out, a package each; `vllm_harness._extensions` names all.

Their errors:

    HarnessError
        BundleError                       bundles.place
        ClusterError, NotRun              cluster.ray_cluster
        ShippingError                     cluster.shipping
        SuiteError                        cluster.suites.on_node
        NoReferenceError                  weights.check
        NoStandIn                         upstream.stand_ins
        RemoteFailure                     upstream.elsewhere
        UsageError
            ForeignError                  foreign.foreign
"""
