package command

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completionTimeout bounds what a person waits who has pressed the tab key.
const completionTimeout = 2 * time.Second

// mustComplete says what a flag may be. A flag that the command does not have is a mistake in this program.
func mustComplete(cmd *cobra.Command, flag string, with cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, with); err != nil {
		panic(err)
	}
}

// choices offers fixed values.
func choices(values ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// several offers values of which more than one may be given, with commas between them.
func several(values ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		var offers []cobra.Completion
		for _, v := range values {
			if !strings.Contains(","+before, ","+v+",") {
				offers = append(offers, before+v)
			}
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	}
}

// mustBe says that a flag is a folder, or a file with one of the endings.
func mustBe(f *pflag.FlagSet, flag string, endings ...string) {
	var err error
	if len(endings) == 0 {
		err = cobra.MarkFlagDirname(f, flag)
	} else {
		err = cobra.MarkFlagFilename(f, flag, endings...)
	}
	if err != nil {
		panic(err)
	}
}

// offer asks a running system for what there is; found is what it has found when ask returns. A system that does not answer in time offers
// nothing.
func offer(cmd *cobra.Command, found *[]cobra.Completion, ask func(context.Context) error) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	if err := ask(ctx); err != nil {
		cobra.CompDebugln(err.Error(), false)
	}
	return *found, cobra.ShellCompDirectiveNoFileComp
}

// withoutFiles ends what a shell does by itself where nothing is known: it offers the files of the folder, which nothing here is.
func withoutFiles(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	each := func(f *pflag.Flag) {
		_, known := cmd.GetFlagCompletionFunc(f.Name)
		_, files := f.Annotations[cobra.BashCompFilenameExt]
		_, folders := f.Annotations[cobra.BashCompSubdirsInDir]
		if !known && !files && !folders && f.Value.Type() != "bool" {
			mustComplete(cmd, f.Name, cobra.NoFileCompletions)
		}
	}
	cmd.PersistentFlags().VisitAll(each)
	cmd.LocalNonPersistentFlags().VisitAll(each)
	for _, sub := range cmd.Commands() {
		withoutFiles(sub)
	}
}
